import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { parseKeys, verify } from './lib/signature.js';

// The vectors of package sdk/signature, which the server's signatures are tested with.
const vectors = JSON.parse(readFileSync(new URL('../../sdk/signature/testdata/vectors.json', import.meta.url), 'utf8'));

function callOf({ like, set }) {
  const { method, url, headers, signature, body } = vectors.signed.find(({ name }) => name === like);
  const given = Object.entries({ ...headers, ...signature, ...set.headers }).filter(([, value]) => value !== null);
  return {
    method: set.method ?? method,
    url: set.target ? new URL(set.target, url).href : url,
    headers: new Headers(given),
    body: Buffer.from(set.body ?? body),
  };
}

for (const vector of vectors.verified) {
  test(`${vector.name}: ${vector.want}`, () => {
    const keys = vector.keys.flatMap((name) => parseKeys(vectors.keys[name].secret));
    const check = () => verify(callOf(vector), keys, vector.now * 1000);
    if (vector.want === 'ok') check();
    else assert.throws(check, { code: vector.want });
  });
}

test('keys are separated by commas, and wrong ones are refused', () => {
  const { first, second } = vectors.keys;
  assert.equal(parseKeys(`${first.secret}, ${second.secret}`).length, 2);
  for (const wrong of ['', 'swsk_', 'swsk_AAAA', first.secret.slice(5), `${first.secret}x`]) assert.throws(() => parseKeys(wrong), TypeError);
});

test('an app with a wrong clock is told the limits', () => {
  const vector = vectors.verified.find(({ want }) => want === 'expired');
  const keys = vector.keys.flatMap((name) => parseKeys(vectors.keys[name].secret));
  assert.throws(() => verify(callOf(vector), keys, vector.now * 1000), {
    message: /^the signature is -?\d+ s old by the clock of this app, and may be -60 to \d+ s: set the clock if it is wrong$/,
  });
});
