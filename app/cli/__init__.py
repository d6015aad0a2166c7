"""The `lowtide` command: what people type. It talks to the api over HTTP, except where it runs it."""
