# Machines reach the bucket and nothing else. The control plane's policy goes to whatever runs the
# worker: attach it to that role.

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
  name               = "lowtide-machine"
  assume_role_policy = data.aws_iam_policy_document.ec2.json
}

resource "aws_iam_role_policy" "machine" {
  name   = "store"
  role   = aws_iam_role.machine.id
  policy = replace(file("${path.module}/machine-policy.json"), "BUCKET", var.bucket)
}

resource "aws_iam_instance_profile" "machine" {
  name = "lowtide-machine"
  role = aws_iam_role.machine.name
}

resource "aws_iam_policy" "control_plane" {
  name   = "lowtide-control-plane"
  policy = file("${path.module}/control-plane-policy.json")
}
