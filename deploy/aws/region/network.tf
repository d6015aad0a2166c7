# Machines have no public address. They reach the control plane through the NAT gateway, and the
# bucket through the gateway endpoint, which costs nothing per byte.

resource "aws_vpc" "lowtide" {
  region               = var.region
  cidr_block           = var.cidr
  enable_dns_hostnames = true
  tags                 = { Name = var.name }
}

resource "aws_internet_gateway" "out" {
  region = var.region
  vpc_id = aws_vpc.lowtide.id
}

resource "aws_subnet" "nat" {
  region            = var.region
  vpc_id            = aws_vpc.lowtide.id
  availability_zone = var.zones[0]
  cidr_block        = cidrsubnet(var.cidr, 8, 255)
  tags              = { Name = "${var.name}-nat" }
}

resource "aws_route_table" "nat" {
  region = var.region
  vpc_id = aws_vpc.lowtide.id

  route {
    cidr_block = "0.0.0.0/0"
    gateway_id = aws_internet_gateway.out.id
  }
}

resource "aws_route_table_association" "nat" {
  region         = var.region
  subnet_id      = aws_subnet.nat.id
  route_table_id = aws_route_table.nat.id
}

resource "aws_eip" "nat" {
  region = var.region
  domain = "vpc"
}

resource "aws_nat_gateway" "out" {
  region        = var.region
  allocation_id = aws_eip.nat.id
  subnet_id     = aws_subnet.nat.id
  depends_on    = [aws_internet_gateway.out]
}

resource "aws_subnet" "machines" {
  region            = var.region
  for_each          = { for index, zone in var.zones : zone => index }
  vpc_id            = aws_vpc.lowtide.id
  availability_zone = each.key
  cidr_block        = cidrsubnet(var.cidr, 4, each.value)
  tags              = merge(local.tags, { Name = "${var.name}-${each.key}" })
}

resource "aws_route_table" "machines" {
  region = var.region
  vpc_id = aws_vpc.lowtide.id

  route {
    cidr_block     = "0.0.0.0/0"
    nat_gateway_id = aws_nat_gateway.out.id
  }
}

resource "aws_route_table_association" "machines" {
  region         = var.region
  for_each       = aws_subnet.machines
  subnet_id      = each.value.id
  route_table_id = aws_route_table.machines.id
}

resource "aws_vpc_endpoint" "bucket" {
  region          = var.region
  vpc_id          = aws_vpc.lowtide.id
  service_name    = "com.amazonaws.${var.region}.s3"
  route_table_ids = [aws_route_table.machines.id]
}

# Only machines of the group itself come in: the ranks of a gang, and EFA, need all of each other.
resource "aws_security_group" "machines" {
  region      = var.region
  name        = "${var.name}-machines"
  description = "Lowtide machines: in from each other, out to anywhere"
  vpc_id      = aws_vpc.lowtide.id
  tags        = local.tags

  ingress {
    from_port = 0
    to_port   = 0
    protocol  = "-1"
    self      = true
  }

  egress {
    from_port = 0
    to_port   = 0
    protocol  = "-1"
    self      = true
  }

  egress {
    from_port   = 0
    to_port     = 0
    protocol    = "-1"
    cidr_blocks = ["0.0.0.0/0"]
  }
}
