variable "regions" {
  description = "Regions to rent in, each with the zones that get a private subnet (those with the wanted machine types) and the address range of its network; a /16 gives each zone 4,091 machines."
  type = map(object({
    zones = list(string)
    cidr  = optional(string, "10.72.0.0/16")
  }))
}

variable "bucket" {
  description = "Name of the bucket for checkpoints, logs and results; unique in the world, the module makes it."
  type        = string
}

variable "bucket_region" {
  description = "Where the bucket is; the region with most machines saves egress."
  type        = string
}

variable "name" {
  description = "How the resources' names begin; a second deployment in the same account needs another one."
  type        = string
  default     = "lowtide"
}

variable "deployment" {
  description = "Id of the deployment, as `lowtide sweep --json` shows it, to bind the policy to its machines alone; * binds it to the machines of any deployment."
  type        = string
  default     = "*"

  validation {
    condition     = var.deployment == "*" || can(regex("^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", var.deployment))
    error_message = "Write the whole id, as lowtide sweep --json shows it, or *."
  }
}

variable "control_plane_arns" {
  description = "Who may assume the role of jobs' data: the role or user that runs the api. Without it whoever in the account a policy allows to, as the control plane's does."
  type        = list(string)
  default     = []
}

variable "keep_machine_rights" {
  description = "Leave machines their own rights on the whole bucket, while some of a release before still run that need them."
  type        = bool
  default     = false
}

variable "activate_cost_tags" {
  description = "Make lowtide:deployment and lowtide:job cost-allocation tags: only in the account that pays, and a day after a first launch has used them."
  type        = bool
  default     = false
}
