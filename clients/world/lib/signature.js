// Verifies that a delivery was sent by a Stepwell server of the app's project: RFC 9421 with HMAC-SHA-256.
// docs/function-contract.md describes the algorithm.
import { createHash, createHmac, timingSafeEqual } from 'node:crypto';

const MAX_AGE_SECONDS = 5 * 60;
const MAX_SKEW_SECONDS = 60;
const KEY_PREFIX = 'swsk_';
const KEY_BYTES = 32;
const REQUIRED = ['@method', '@path', '@query', 'content-digest'];

// The subset of structured fields (RFC 8941) that signatures use: label=("name" …);params or label=:base64:
const MEMBER = /([a-z0-9_.*-]+)=(?:(\((?:"[ !#-[\]-~]*"(?: (?=")|(?=\))))*\)([^,]*))|:([^:]*):)(?:, *(?=.)|$)/y;
const PARAMETER = /;([a-z]+)=(?:"([ !#-[\]-~]*)"|(-?\d{1,15}))/g;
const PARAMETERS = new RegExp(`^(?:${PARAMETER.source})*$`);

/** Why a call is refused: a code of one word, and a message. */
export class Refused extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

/** Parses keys as POST /v1/signing-keys returns them, separated by commas. @throws if one is invalid */
export function parseKeys(text) {
  return text.split(',').map((each) => {
    const key = each.trim();
    const secret = base64(key.slice(KEY_PREFIX.length));
    if (!key.startsWith(KEY_PREFIX) || secret?.length !== KEY_BYTES) {
      throw new TypeError(`a signing key is ${KEY_PREFIX} and ${KEY_BYTES} bytes in base64`);
    }
    return secret;
  });
}

/**
 * Checks that a call was signed with one of the keys in the last five minutes, and not changed since.
 * @param call its method, its url, its headers (a Headers) and its body (bytes)
 * @param now in milliseconds
 * @throws Refused
 */
export function verify({ method, url, headers, body }, keys, now = Date.now()) {
  const fields = [headers.get('signature-input'), headers.get('signature')];
  if (fields[0] === null && fields[1] === null) throw new Refused('unsigned', 'the call is not signed');
  const [inputs, signatures] = fields.map((text) => dictionary(text ?? ''));
  const target = new URL(url, 'http://app');
  const wrong = new Refused('wrong', 'the signature is wrong');
  let refusal = wrong;
  for (const [label, input] of inputs) {
    const signature = signatures.get(label)?.bytes;
    try {
      if (!signature || !input.list) throw new Refused('malformed', `there is no signature ${label}`);
      const text = baseOf(input, { method, target, headers });
      if (!keys.some((key) => equal(createHmac('sha256', key).update(text, 'latin1').digest(), signature))) throw wrong;
      checkTime(input.params, now / 1000);
    } catch (err) {
      if (!(err instanceof Refused)) throw err;
      if (refusal === wrong) refusal = err;
      continue;
    }
    return checkDigest(headers, body);
  }
  throw refusal;
}

/** The text that is signed. @throws Refused unless it covers all that identifies the call */
function baseOf({ raw, list, params }, { method, target, headers }) {
  if ((params.get('alg') ?? 'hmac-sha256') !== 'hmac-sha256') throw new Refused('malformed', 'the algorithm is unknown');
  const identifying = [...headers.keys()].filter((name) => /^(content-type|idempotency-key)$|^(ce|stepwell)-/.test(name));
  for (const name of [...REQUIRED, ...identifying]) {
    if (!list.includes(name)) throw new Refused('incomplete', `the signature does not cover ${name}`);
  }
  if (new Set(list).size < list.length) throw new Refused('malformed', 'the signature covers something twice');
  const derived = { '@method': method, '@path': target.pathname, '@query': target.search || '?', '@authority': headers.get('host') };
  const lines = list.map((name) => {
    const value = (name.startsWith('@') ? derived[name] : headers.get(name)) ?? undefined;
    if (value === undefined) throw new Refused('malformed', `the signature covers ${name}, which is missing from the call`);
    return `"${name}": ${value.trim()}\n`;
  });
  return `${lines.join('')}"@signature-params": ${raw}`;
}

function checkTime(params, now) {
  const created = params.get('created');
  if (typeof created !== 'number') throw new Refused('incomplete', 'the signature has no creation time');
  const expires = params.get('expires');
  const end = Math.min(created + MAX_AGE_SECONDS, typeof expires === 'number' ? expires : Infinity);
  if (now >= created - MAX_SKEW_SECONDS && now <= end + MAX_SKEW_SECONDS) return;
  const [age, oldest] = [now, end + MAX_SKEW_SECONDS].map((time) => Math.floor(time - created));
  throw new Refused('expired', `the signature is ${age} s old by the clock of this app, and may be ${-MAX_SKEW_SECONDS} to ${oldest} s: set the clock if it is wrong`);
}

function checkDigest(headers, body) {
  const digest = dictionary(headers.get('content-digest')).get('sha-256')?.bytes;
  if (!digest) throw new Refused('malformed', 'the digest of the body is missing');
  if (!equal(createHash('sha256').update(body).digest(), digest)) throw new Refused('digest', 'the body is not the one that was signed');
}

function equal(a, b) {
  return a.length === b.length && timingSafeEqual(a, b);
}

/** Parses a dictionary: members with the bytes of a byte sequence, or with the names of a list and its parameters. */
function dictionary(text) {
  const members = new Map();
  MEMBER.lastIndex = 0;
  while (MEMBER.lastIndex < text.length) {
    const [, label, raw, rest, encoded] = MEMBER.exec(text) ?? [];
    if (label === undefined || members.has(label)) throw new Refused('malformed', 'a header of the signature is malformed');
    const list = raw?.slice(0, raw.length - rest.length).match(/"[^"]*"/g) ?? [];
    members.set(label, raw === undefined ? { bytes: bytesOf(encoded) } : { raw, list: list.map((name) => name.slice(1, -1)), params: parametersOf(rest) });
  }
  return members;
}

function parametersOf(text) {
  if (!PARAMETERS.test(text)) throw new Refused('malformed', 'a parameter of the signature is malformed');
  return new Map([...text.matchAll(PARAMETER)].map(([, key, words, number]) => [key, number === undefined ? words : Number(number)]));
}

function bytesOf(encoded) {
  const bytes = base64(encoded);
  if (!bytes) throw new Refused('malformed', 'a byte sequence is not valid base64');
  return bytes;
}

/** Decodes base64, or returns undefined: Buffer ignores what is wrong. */
function base64(text) {
  const bytes = Buffer.from(text, 'base64');
  return bytes.toString('base64') === text ? bytes : undefined;
}
