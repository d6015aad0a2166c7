"""The `lowtide` command. It talks to the api over HTTP, except where it runs the api itself."""
