// Entities as the runtime expects them.
import * as zlib from 'node:zlib';

const PREFIX = 4; // bytes that name the format of a payload

/** A payload without compression: dashboards cannot read a compressed one. */
function plain(value) {
  if (!(value instanceof Uint8Array) || value.length < PREFIX) return value;
  const format = String.fromCharCode(...value.subarray(0, PREFIX));
  if (format === 'gzip') return new Uint8Array(zlib.gunzipSync(value.subarray(PREFIX)));
  if (format === 'zstd' && zlib.zstdDecompressSync) return new Uint8Array(zlib.zstdDecompressSync(value.subarray(PREFIX)));
  return value;
}

/** On the 4.x line, errors are objects with a message. */
function structured(error, code) {
  if (typeof error === 'string') return { message: error, code };
  if (error instanceof Uint8Array || !error) return error;
  return { ...error, code: code ?? error.code };
}

function withoutData(entity, resolveData) {
  return resolveData === 'none' ? { ...entity, input: undefined, output: undefined } : entity;
}

export function normalizeRun(run, resolveData, specVersion) {
  const { errorCode, ...rest } = run;
  if (specVersion > 3) return withoutData(normalizeData(run), resolveData);
  return withoutData(run.error ? { ...rest, error: structured(run.error, errorCode) } : run, resolveData);
}

export function normalizeStep(step, resolveData, specVersion) {
  if (specVersion > 3) return withoutData(normalizeData(step), resolveData);
  return withoutData(step.error ? { ...step, error: structured(step.error) } : step, resolveData);
}

export function normalizeHook(hook) {
  return 'metadata' in hook ? { ...hook, metadata: plain(hook.metadata) } : hook;
}

function normalizeData(entity) {
  const result = { ...entity };
  for (const field of ['input', 'output', 'error']) if (result[field] !== undefined) result[field] = plain(result[field]);
  return result;
}
