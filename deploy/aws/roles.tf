# Machines have no rights of their own. The control plane assumes the role of jobs' data and hands
# each machine a session of it that is narrowed to its job's own folders. The control plane's policy
# goes to whatever runs the api and the worker: attach it to that role. IAM knows no regions, so all
# this is made once.

data "aws_iam_policy_document" "ec2" {
  statement {
    actions = ["sts:AssumeRole"]
    principals {
      type        = "Service"
      identifiers = ["ec2.amazonaws.com"]
    }
  }
}

resource "aws_iam_role" "machine" {
  name               = "${var.name}-machine"
  assume_role_policy = data.aws_iam_policy_document.ec2.json
}

# Only while machines of a release before still run (docs/aws.md, Upgrading).
resource "aws_iam_role_policy" "machine" {
  count  = var.keep_machine_rights ? 1 : 0
  name   = "store"
  role   = aws_iam_role.machine.id
  policy = templatefile("${path.module}/data-policy.json", { bucket = var.bucket })
}

resource "aws_iam_instance_profile" "machine" {
  name = "${var.name}-machine"
  role = aws_iam_role.machine.name
}

# The account is trusted, so that IAM asks for a policy that allows it: the control plane's alone
# does. control_plane_arns narrows the trust itself.
data "aws_iam_policy_document" "control_plane" {
  statement {
    actions = ["sts:AssumeRole"]
    principals {
      type = "AWS"
      identifiers = length(var.control_plane_arns) > 0 ? var.control_plane_arns : [
        "${regex("^arn:[^:]+:iam::[0-9]+:", aws_iam_role.machine.arn)}root"
      ]
    }
  }
}

resource "aws_iam_role" "job_data" {
  name                 = "${var.name}-job-data"
  assume_role_policy   = data.aws_iam_policy_document.control_plane.json
  max_session_duration = 3600
}

resource "aws_iam_role_policy" "job_data" {
  name   = "store"
  role   = aws_iam_role.job_data.id
  policy = templatefile("${path.module}/data-policy.json", { bucket = var.bucket })
}

resource "aws_iam_policy" "control_plane" {
  name = "${var.name}-control-plane"
  policy = templatefile("${path.module}/control-plane-policy.json", {
    bucket           = var.bucket
    deployment       = var.deployment
    deployment_begin = var.deployment == "*" ? "" : substr(var.deployment, 0, 8)
    name             = var.name
  })
}
