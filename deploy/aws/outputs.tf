output "settings" {
  description = "Lines for the control plane's .env."
  value       = <<-END
    LOWTIDE_PROVIDERS=aws
    LOWTIDE_AWS_REGIONS=${join(",", sort(keys(var.regions)))}
    LOWTIDE_AWS_NETWORK_TAG=lowtide:network=${var.name}
    LOWTIDE_AWS_INSTANCE_PROFILE=${aws_iam_instance_profile.machine.name}
    LOWTIDE_AWS_DATA_ROLE=${aws_iam_role.job_data.arn}
    LOWTIDE_AWS_QUEUE_URL=${join(",", [for key in sort(keys(var.regions)) : module.region[key].queue_url])}
    LOWTIDE_OBJECT_STORE_URI=s3://${aws_s3_bucket.store.id}/lowtide
    AWS_REGION=${var.bucket_region}
  END
}

output "control_plane_policy_arn" {
  description = "Attach it to the role that runs the api and the worker."
  value       = aws_iam_policy.control_plane.arn
}
