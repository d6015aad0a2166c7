# Machines reach the bucket and nothing else. The control plane's policy goes to whatever runs the
# api and the worker: attach it to that role. IAM knows no regions, so all this is made once.

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

resource "aws_iam_role_policy" "machine" {
  name   = "store"
  role   = aws_iam_role.machine.id
  policy = templatefile("${path.module}/machine-policy.json", { bucket = var.bucket })
}

resource "aws_iam_instance_profile" "machine" {
  name = "${var.name}-machine"
  role = aws_iam_role.machine.name
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
