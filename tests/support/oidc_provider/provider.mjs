// An issuer of OpenID Connect for the long tests: the certified `oidc-provider`, as a process.
//
// `node provider.mjs FILE` reads its settings from FILE: {"port", "client_id", "client_secret",
// "redirect_uri", "keys": private JWKs, of which the first signs, "accounts": path of a file,
// "userinfo": whether claims are there alone, as oidc-provider has it by default}.
// The file of accounts, {login: claims}, is read at each sign-in. Each line that it prints is one
// JSON document: {"event": "listening"}, what it granted, and what it refused. It ends with its
// standard input, that is, with the process that started it.
import { readFileSync } from 'node:fs';
import process from 'node:process';
import Provider from 'oidc-provider';

const settings = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const say = (event, facts = {}) => console.log(JSON.stringify({ event, ...facts }));

function findAccount(_, login) {
  const claims = JSON.parse(readFileSync(settings.accounts, 'utf8'))[login];
  return claims && { accountId: login, claims: () => ({ sub: login, ...claims }) };
}

const provider = new Provider(`http://127.0.0.1:${settings.port}`, {
  clients: [
    {
      client_id: settings.client_id,
      client_secret: settings.client_secret,
      redirect_uris: [settings.redirect_uri],
      token_endpoint_auth_method: 'client_secret_basic',
      response_types: ['code'],
      grant_types: ['authorization_code'],
    },
  ],
  jwks: { keys: settings.keys },
  cookies: { keys: ['the cookies of the tests'] },
  pkce: { methods: ['S256'], required: () => true },
  scopes: ['openid'],
  claims: {
    email: ['email', 'email_verified'],
    profile: ['name', 'preferred_username'],
    groups: ['groups'],
  },
  // Lowtide reads the ID token alone.
  conformIdTokenClaims: settings.userinfo,
  findAccount,
});

provider.on('grant.success', ({ oidc }) => {
  const { codeChallengeMethod, scope } = oidc.entities.AuthorizationCode;
  say('granted', { pkce: codeChallengeMethod, scope });
});
for (const name of ['authorization.error', 'grant.error', 'jwks.error', 'discovery.error']) {
  provider.on(name, (_, error) => say('refused', { error: error.error, why: error.error_detail ?? error.error_description }));
}
provider.on('server_error', (_, error) => say('failed', { why: error.stack }));

provider.listen(settings.port, '127.0.0.1', () => say('listening'));
process.stdin.resume().on('end', () => process.exit());
