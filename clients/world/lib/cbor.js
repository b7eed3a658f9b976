// The part of CBOR (RFC 8949) that the server and the SDK's clients exchange: docs/protocol.md §2.1. Dates are tag 1.

const LARGEST_UINT32 = 0xffffffff;
const text = new TextDecoder('utf-8', { fatal: true });

/** Encodes a value. Properties that are undefined are left out. */
export function encode(value) {
  const writer = new Writer();
  writer.value(value);
  return writer.done();
}

/** Decodes exactly one value. @throws if the bytes are cut, or go on after the value. */
export function decode(bytes) {
  const reader = new Reader(bytes);
  const value = reader.value();
  if (reader.at !== bytes.length) throw malformed('bytes after the value');
  return value;
}

class Writer {
  #buffer = Buffer.allocUnsafe(512);
  #length = 0;

  done() {
    return this.#buffer.subarray(0, this.#length);
  }

  value(v) {
    switch (typeof v) {
      case 'string':
        return this.#text(v);
      case 'number':
        return this.#number(v);
      case 'boolean':
        return this.#byte(v ? 0xf5 : 0xf4);
      case 'bigint':
        return this.#bigint(v);
      case 'object':
        return this.#object(v);
      default: // undefined, and what has no encoding
        return this.#byte(0xf7);
    }
  }

  #object(v) {
    if (v === null) return this.#byte(0xf6);
    if (v instanceof Uint8Array) {
      this.#head(2, v.length);
      return this.#bytes(v);
    }
    if (v instanceof Date) {
      this.#byte(0xc1);
      return this.#number(v.getTime() / 1000);
    }
    if (Array.isArray(v) || v instanceof Set) {
      const items = [...v];
      this.#head(4, items.length);
      for (const item of items) this.value(item);
      return;
    }
    const entries = v instanceof Map ? [...v] : Object.entries(typeof v.toJSON === 'function' ? v.toJSON() : v);
    const present = entries.filter(([, item]) => item !== undefined && typeof item !== 'function');
    this.#head(5, present.length);
    for (const [key, item] of present) {
      this.value(key);
      this.value(item);
    }
  }

  #number(n) {
    if (Number.isInteger(n) && n >= 0 && n <= LARGEST_UINT32 && !Object.is(n, -0)) return this.#head(0, n);
    if (Number.isInteger(n) && n < 0 && n >= -0x80000000) return this.#head(1, -1 - n);
    const at = this.#reserve(9);
    this.#buffer[at] = 0xfb;
    this.#buffer.writeDoubleBE(n, at + 1);
  }

  #bigint(n) {
    const negative = n < 0n;
    const at = this.#reserve(9);
    this.#buffer[at] = negative ? 0x3b : 0x1b;
    this.#buffer.writeBigUInt64BE(BigInt.asUintN(64, negative ? -1n - n : n), at + 1);
  }

  #text(s) {
    const length = Buffer.byteLength(s);
    this.#head(3, length);
    const at = this.#reserve(length);
    this.#buffer.write(s, at);
  }

  #bytes(b) {
    const at = this.#reserve(b.length);
    this.#buffer.set(b, at);
  }

  #byte(b) {
    const at = this.#reserve(1);
    this.#buffer[at] = b;
  }

  /** Writes a major type and its length or value. */
  #head(major, n) {
    const type = major << 5;
    if (n < 24) return this.#byte(type | n);
    if (n <= 0xff) {
      const at = this.#reserve(2);
      this.#buffer[at] = type | 24;
      this.#buffer[at + 1] = n;
    } else if (n <= 0xffff) {
      const at = this.#reserve(3);
      this.#buffer[at] = type | 25;
      this.#buffer.writeUInt16BE(n, at + 1);
    } else {
      const at = this.#reserve(5);
      this.#buffer[at] = type | 26;
      this.#buffer.writeUInt32BE(n, at + 1);
    }
  }

  #reserve(size) {
    const at = this.#length;
    this.#length += size;
    if (this.#length > this.#buffer.length) {
      const larger = Buffer.allocUnsafe(Math.max(this.#length, this.#buffer.length * 2));
      larger.set(this.#buffer.subarray(0, at));
      this.#buffer = larger;
    }
    return at;
  }
}

class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    this.at = 0;
  }

  value() {
    const first = this.#take(1);
    const head = this.bytes[first];
    const [major, info] = [head >> 5, head & 31];
    if (major === 7) return this.#simple(info);
    const length = info === 31 ? -1 : this.#argument(info);
    switch (major) {
      case 0:
        return length;
      case 1:
        return typeof length === 'bigint' ? -1n - length : -1 - length;
      case 2:
        return this.#bytes(length);
      case 3:
        return text.decode(this.#bytes(length));
      case 4:
        return this.#items(length);
      case 5:
        return this.#map(length);
      default:
        return this.#tagged(length);
    }
  }

  #argument(info) {
    if (info < 24) return info;
    if (info === 24) return this.view.getUint8(this.#take(1));
    if (info === 25) return this.view.getUint16(this.#take(2));
    if (info === 26) return this.view.getUint32(this.#take(4));
    if (info !== 27) throw malformed(`length code ${info}`);
    const large = this.view.getBigUint64(this.#take(8));
    return large <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(large) : large;
  }

  #simple(info) {
    switch (info) {
      case 20:
        return false;
      case 21:
        return true;
      case 22:
        return null;
      case 23:
        return undefined;
      case 25:
        return halfFloat(this.view.getUint16(this.#take(2)));
      case 26:
        return this.view.getFloat32(this.#take(4));
      case 27:
        return this.view.getFloat64(this.#take(8));
      default:
        throw malformed(`simple value ${info}`);
    }
  }

  #bytes(length) {
    if (typeof length !== 'number' || length < 0) throw malformed('a string of unknown length');
    const at = this.#take(length);
    // A plain Uint8Array: Buffer's slice and toString differ from it.
    return new Uint8Array(this.bytes.buffer, this.bytes.byteOffset + at, length);
  }

  #items(length) {
    const items = [];
    while (length < 0 ? !this.#ended() : items.length < length) items.push(this.value());
    return items;
  }

  #map(length) {
    const map = {};
    for (let i = 0; length < 0 ? !this.#ended() : i < length; i++) {
      const key = this.value();
      const item = this.value();
      if (key === '__proto__') Object.defineProperty(map, key, { value: item, enumerable: true, configurable: true });
      else map[key] = item;
    }
    return map;
  }

  #tagged(tag) {
    const value = this.value();
    if (tag === 1) return new Date(Math.round(Number(value) * 1000));
    if (tag === 0) return new Date(value);
    return value; // 64 is a byte string, and others do not matter here
  }

  /** Reports whether an array or map of unknown length ends here. */
  #ended() {
    if (this.bytes[this.at] !== 0xff) return false;
    this.at++;
    return true;
  }

  #take(length) {
    const at = this.at;
    if (length > this.bytes.length - at) throw malformed('the bytes are cut');
    this.at += length;
    return at;
  }
}

function halfFloat(bits) {
  const [sign, exponent, fraction] = [bits >> 15 ? -1 : 1, (bits >> 10) & 31, bits & 0x3ff];
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

function malformed(what) {
  return new RangeError(`malformed CBOR: ${what}`);
}
