variable "project" {
  description = "Project in which machines are rented."
  type        = string
}

variable "regions" {
  description = "Regions in which machines are rented, each with the range of its subnetwork."
  type        = map(string)
  default     = { "us-central1" = "10.80.0.0/20" }
}

variable "bucket_location" {
  description = "Where the bucket is; the region with most machines saves egress."
  type        = string
  default     = "us-central1"
}

variable "bucket_name" {
  description = "Name of the bucket for checkpoints, workdirs and logs; unique in the world."
  type        = string
}

variable "name" {
  description = "How the resources' names begin."
  type        = string
  default     = "lowtide"
}

variable "keep_machine_rights" {
  description = "Leave machines their own rights on the whole bucket, while some of a release before still run that need them."
  type        = bool
  default     = false
}

variable "bind_names" {
  description = "Whether metadata, labels, tags and accounts may be set of machines named lt-* alone. Google's pages do not say under which name a creation is checked: try it with `lowtide doctor --launch --nodes 2`."
  type        = bool
  default     = false
}
