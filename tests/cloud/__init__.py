"""The conformance suite against real accounts; `make test-cloud`. Not part of `make test`."""
