variable "region" {
  description = "Region to rent in; use the module once for each region."
  type        = string
}

variable "bucket" {
  description = "Name of the bucket for checkpoints, logs and results; the module makes it."
  type        = string
}

variable "zones" {
  description = "Zones that get a private subnet, at least those with the wanted machine types."
  type        = list(string)
}

variable "cidr" {
  description = "Address range of the network; a /16 gives each zone 4,091 machines."
  type        = string
  default     = "10.72.0.0/16"
}

variable "network_tag" {
  description = "Value of the tag lowtide:network, as in LOWTIDE_AWS_NETWORK_TAG."
  type        = string
  default     = "default"
}
