# What Lowtide needs of an AWS account: once a bucket, a role for machines and the control plane's
# policy, and in each region a network without inbound doors and a queue of events. One `apply`
# makes all of it; docs/aws.md explains each part.

terraform {
  required_version = ">= 1.6"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 6.0" # from 6.0 on a resource says its own region
    }
  }
}

provider "aws" {
  region = var.bucket_region
}

module "region" {
  source   = "./region"
  for_each = var.regions
  region   = each.key
  zones    = each.value.zones
  cidr     = each.value.cidr
  name     = var.name
}

# Costs by deployment and job in Cost Explorer and in the bill's exports.
resource "aws_ce_cost_allocation_tag" "lowtide" {
  for_each = var.activate_cost_tags ? toset(["lowtide:deployment", "lowtide:job"]) : toset([])
  tag_key  = each.key
  status   = "Active"
}
