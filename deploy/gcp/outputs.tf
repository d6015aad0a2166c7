output "settings" {
  description = "Lines for the control plane's .env."
  value       = <<-END
    LOWTIDE_PROVIDERS=gcp
    LOWTIDE_GCP_PROJECT=${var.project}
    LOWTIDE_GCP_REGIONS=${join(",", sort(keys(var.regions)))}
    LOWTIDE_GCP_NETWORK=global/networks/${google_compute_network.machines.name}
    LOWTIDE_GCP_SUBNETWORK=regions/{region}/subnetworks/${var.name}
    LOWTIDE_GCP_SERVICE_ACCOUNT=${google_service_account.machines.email}
    LOWTIDE_GCP_DATA_ACCOUNT=${google_service_account.data.email}
    LOWTIDE_OBJECT_STORE_URI=gs://${google_storage_bucket.store.name}/lowtide
  END
}

output "control_service_account" {
  description = "Whom the control plane signs in as; give it a key or workload identity."
  value       = google_service_account.control.email
}
