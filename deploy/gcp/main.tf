# Everything that Lowtide needs in a Google Cloud project: a private network with a way out, a
# bucket, and three service accounts: of the control plane, of the machines it rents, which may do
# nothing, and of jobs' data, whose tokens the control plane narrows to each job's own folders.

locals {
  # What this module makes, what the product calls, and what request-quota.sh asks.
  apis = toset([
    "cloudbilling.googleapis.com",
    "cloudquotas.googleapis.com",
    "cloudresourcemanager.googleapis.com",
    "compute.googleapis.com",
    "iam.googleapis.com",
    "iamcredentials.googleapis.com",
    "secretmanager.googleapis.com",
    "serviceusage.googleapis.com",
    "storage.googleapis.com",
    "sts.googleapis.com",
  ])
  role        = jsondecode(file("${path.module}/role.json"))
  ending_role = jsondecode(file("${path.module}/ending-role.json"))

  # What may be changed of a machine that runs, and is asked for when one is created.
  setting_permissions = [
    "compute.disks.setLabels",
    "compute.instances.setLabels",
    "compute.instances.setMetadata",
    "compute.instances.setServiceAccount",
    "compute.instances.setTags",
  ]
  bound_permissions = var.bind_names ? local.setting_permissions : []
}

resource "google_project_service" "api" {
  for_each           = local.apis
  service            = each.key
  disable_on_destroy = false
}

resource "google_compute_network" "machines" {
  name                    = var.name
  auto_create_subnetworks = false
  depends_on              = [google_project_service.api]
}

resource "google_compute_subnetwork" "machines" {
  for_each                 = var.regions
  name                     = var.name
  region                   = each.key
  network                  = google_compute_network.machines.id
  ip_cidr_range            = each.value
  private_ip_google_access = true
}

# Machines have no public address; they report to the control plane through NAT.
resource "google_compute_router" "machines" {
  for_each = var.regions
  name     = var.name
  region   = each.key
  network  = google_compute_network.machines.id
}

resource "google_compute_router_nat" "machines" {
  for_each                           = var.regions
  name                               = var.name
  region                             = each.key
  router                             = google_compute_router.machines[each.key].name
  nat_ip_allocate_option             = "AUTO_ONLY"
  source_subnetwork_ip_ranges_to_nat = "ALL_SUBNETWORKS_ALL_IP_RANGES"
}

# Only the machines of a gang talk to each other; nothing else comes in.
resource "google_compute_firewall" "gang" {
  name        = "${var.name}-gang"
  network     = google_compute_network.machines.id
  direction   = "INGRESS"
  source_tags = ["lowtide"]
  target_tags = ["lowtide"]

  allow {
    protocol = "tcp"
  }

  allow {
    protocol = "udp"
  }

  allow {
    protocol = "icmp"
  }
}

resource "google_storage_bucket" "store" {
  name                        = var.bucket_name
  location                    = var.bucket_location
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = false
  depends_on                  = [google_project_service.api]

  # Parts of uploads that a machine did not live to finish.
  lifecycle_rule {
    condition {
      age = 7
    }
    action {
      type = "AbortIncompleteMultipartUpload"
    }
  }
}

resource "google_service_account" "control" {
  account_id   = "${var.name}-control"
  display_name = "Lowtide control plane"
  depends_on   = [google_project_service.api]
}

resource "google_service_account" "machines" {
  account_id   = "${var.name}-machines"
  display_name = "Lowtide machines"
  depends_on   = [google_project_service.api]
}

resource "google_service_account" "data" {
  account_id   = "${var.name}-job-data"
  display_name = "Lowtide jobs' data"
  depends_on   = [google_project_service.api]
}

resource "google_project_iam_custom_role" "control" {
  role_id     = replace("${var.name}_control", "-", "_")
  title       = local.role.title
  description = local.role.description
  permissions = setsubtract(local.role.permissions, local.bound_permissions)
  depends_on  = [google_project_service.api]
}

resource "google_project_iam_member" "control" {
  project = var.project
  role    = google_project_iam_custom_role.control.id
  member  = google_service_account.control.member
}

# Conditions know a resource by its name, never by its labels, and only resources of some types:
# instances and disks are among them, resource policies are not. What is no machine and no disk
# passes, so that the project itself can be asked whether the permissions are there.
resource "google_project_iam_custom_role" "ending" {
  role_id     = replace("${var.name}_ending", "-", "_")
  title       = local.ending_role.title
  description = local.ending_role.description
  permissions = setunion(local.ending_role.permissions, local.bound_permissions)
  depends_on  = [google_project_service.api]
}

resource "google_project_iam_member" "ending" {
  project = var.project
  role    = google_project_iam_custom_role.ending.id
  member  = google_service_account.control.member

  condition {
    title       = "Names of Lowtide only"
    description = "Machines, and the disks that are named after them, begin with lt-."
    expression = join(" && ", [
      for type, noun in { Instance = "instances", Disk = "disks" } :
      "(resource.type != \"compute.googleapis.com/${type}\" || resource.name.extract(\"/${noun}/{name}\").startsWith(\"lt-\"))"
    ])
  }
}

# The control plane starts machines that run as the machines' account, and as no other.
resource "google_service_account_iam_member" "control_runs_machines" {
  service_account_id = google_service_account.machines.name
  role               = "roles/iam.serviceAccountUser"
  member             = google_service_account.control.member
}

# It makes tokens of the account of jobs' data, which nobody else may, and narrows them.
resource "google_service_account_iam_member" "control_narrows_data" {
  service_account_id = google_service_account.data.name
  role               = "roles/iam.serviceAccountTokenCreator"
  member             = google_service_account.control.member
}

resource "google_storage_bucket_iam_member" "store" {
  for_each = {
    control = google_service_account.control.member
    data    = google_service_account.data.member
  }
  bucket = google_storage_bucket.store.name
  role   = "roles/storage.objectUser"
  member = each.value
}

# Only while machines of a release before still run (docs/gcp.md, Upgrading).
resource "google_storage_bucket_iam_member" "machines" {
  count  = var.keep_machine_rights ? 1 : 0
  bucket = google_storage_bucket.store.name
  role   = "roles/storage.objectUser"
  member = google_service_account.machines.member
}
