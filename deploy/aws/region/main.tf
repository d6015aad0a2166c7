# One region: the network of its machines and the queue of its events. Every resource names its
# region, so that one provider serves all of them; names are unique within a region only.

terraform {
  required_version = ">= 1.6"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 6.0"
    }
  }
}

locals {
  tags = { "lowtide:network" = var.name }
}
