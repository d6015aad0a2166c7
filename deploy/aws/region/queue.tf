# EventBridge's events about instances of this account in the region, for the worker to read. They
# are kept for four days, longer than EC2 shows an ended instance: a control plane that was off for
# a night still learns which machines EC2 took, and when.

resource "aws_sqs_queue" "interruptions" {
  region                     = var.region
  name                       = "${var.name}-interruptions"
  message_retention_seconds  = 345600
  visibility_timeout_seconds = 15
  sqs_managed_sse_enabled    = true
}

data "aws_iam_policy_document" "queue" {
  statement {
    actions   = ["sqs:SendMessage"]
    resources = [aws_sqs_queue.interruptions.arn]
    principals {
      type        = "Service"
      identifiers = ["events.amazonaws.com"]
    }
    condition {
      test     = "ArnEquals"
      variable = "aws:SourceArn"
      values   = [for rule in aws_cloudwatch_event_rule.told : rule.arn]
    }
  }
}

resource "aws_sqs_queue_policy" "interruptions" {
  region    = var.region
  queue_url = aws_sqs_queue.interruptions.id
  policy    = data.aws_iam_policy_document.queue.json
}

locals {
  events = {
    interruptions = {
      source = ["aws.ec2"]
      detail-type = [
        "EC2 Spot Instance Interruption Warning",
        "EC2 Capacity Reservation Instance Interruption Warning",
        "EC2 Instance Rebalance Recommendation",
        "EC2 Instance State-change Notification",
      ]
    }
    health = {
      source      = ["aws.health"]
      detail-type = ["AWS Health Event"]
      detail      = { service = ["EC2"] }
    }
  }
}

resource "aws_cloudwatch_event_rule" "told" {
  for_each      = local.events
  region        = var.region
  name          = "${var.name}-${each.key}"
  event_pattern = jsonencode(each.value)
}

resource "aws_cloudwatch_event_target" "queue" {
  for_each = local.events
  region   = var.region
  rule     = aws_cloudwatch_event_rule.told[each.key].name
  arn      = aws_sqs_queue.interruptions.arn
}
