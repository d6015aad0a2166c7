# EventBridge's events about instances of this account, for the worker to read.

resource "aws_sqs_queue" "interruptions" {
  name                       = "lowtide-interruptions"
  message_retention_seconds  = 600
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
      values   = [aws_cloudwatch_event_rule.interruptions.arn]
    }
  }
}

resource "aws_sqs_queue_policy" "interruptions" {
  queue_url = aws_sqs_queue.interruptions.id
  policy    = data.aws_iam_policy_document.queue.json
}

resource "aws_cloudwatch_event_rule" "interruptions" {
  name = "lowtide-interruptions"
  event_pattern = jsonencode({
    source = ["aws.ec2"]
    detail-type = [
      "EC2 Spot Instance Interruption Warning",
      "EC2 Instance Rebalance Recommendation",
      "EC2 Instance State-change Notification",
    ]
  })
}

resource "aws_cloudwatch_event_target" "interruptions" {
  rule = aws_cloudwatch_event_rule.interruptions.name
  arn  = aws_sqs_queue.interruptions.arn
}
