"""REST for people and for agents: routes, sign-in, errors. Rules live in the layers below."""
