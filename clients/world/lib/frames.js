// Frames (docs/protocol.md §2.2): u32 length, CBOR metadata, u32 length, body.
import { decode, encode } from './cbor.js';

const NOTHING = new Uint8Array(0);

/** Returns the parts of one frame, to be concatenated. */
export function frame(meta, body = NOTHING) {
  const encoded = encode(meta);
  return [u32(encoded.length), encoded, u32(body.length), body];
}

/** Decodes whole frames. @throws if the last one is cut. */
export function readFrames(bytes) {
  const frames = [];
  for (let at = 0; at < bytes.length; ) {
    const meta = part(bytes, at);
    const body = part(bytes, meta.end);
    frames.push({ meta: decode(meta.data), body: body.data });
    at = body.end;
  }
  return frames;
}

/**
 * Decodes a list of frames that must end with `{_end: 1}`. A list without it is cut, and never taken for a whole one.
 * Returns the frames before the end, and the end's metadata.
 */
export function readList(bytes) {
  const frames = readFrames(bytes);
  const end = frames.pop();
  if (end?.meta._end !== 1) throw new RangeError('cut frames: the end is missing');
  return { frames, end: end.meta };
}

function part(bytes, at) {
  if (bytes.length - at < 4) throw new RangeError('cut frames: no length');
  const length = new DataView(bytes.buffer, bytes.byteOffset + at, 4).getUint32(0);
  const end = at + 4 + length;
  if (end > bytes.length) throw new RangeError('cut frames: not enough bytes');
  return { data: new Uint8Array(bytes.buffer, bytes.byteOffset + at + 4, length), end };
}

function u32(n) {
  const bytes = Buffer.allocUnsafe(4);
  bytes.writeUInt32BE(n);
  return bytes;
}
