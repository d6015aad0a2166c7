# What Lowtide needs of an AWS account in one region: a network without inbound doors, a bucket, a
# role for machines, and a queue of interruption events. docs/aws.md explains each part.

terraform {
  required_version = ">= 1.6"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.60"
    }
  }
}

provider "aws" {
  region = var.region
}

locals {
  tags = { "lowtide:network" = var.network_tag }
}
