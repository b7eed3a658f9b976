// What a deployment has registered, as it was written: a number in a schema keeps all its digits.
import { callText } from "./api";
import { parseJson, type JsonValue } from "./lib/jsontext";
import { Problem } from "./lib/problem";
import { project } from "./location";

export async function readDeployment(id: string, signal?: AbortSignal): Promise<JsonValue> {
  return parseJson(await callText(project.value, "GET /v1/deployments/{id}", { path: { id }, ...(signal && { signal }) }));
}

// noneIf404 is for readDeployment where there may be no deployment.
export function noneIf404(err: unknown): JsonValue {
  if (err instanceof Problem && err.status === 404) return parseJson("{}");
  throw err;
}
