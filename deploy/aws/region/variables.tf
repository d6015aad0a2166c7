variable "region" {
  description = "The region."
  type        = string
}

variable "zones" {
  description = "Its zones that get a private subnet; the first one has the NAT gateway."
  type        = list(string)

  validation {
    condition     = length(var.zones) > 0
    error_message = "Name at least one zone, as in us-east-1a."
  }
}

variable "cidr" {
  description = "Address range of the network."
  type        = string
}

variable "name" {
  description = "How names begin, and the value of the tag lowtide:network."
  type        = string
}
