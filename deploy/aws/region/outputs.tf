output "queue_url" {
  description = "The queue of events, for LOWTIDE_AWS_QUEUE_URL."
  value       = aws_sqs_queue.interruptions.url
}
