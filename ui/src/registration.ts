// What a deployment has registered, as it was written: a number in a schema keeps all its digits.
import { callText } from "./api";
import { member, parseJson, writeJson, type JsonValue } from "./lib/jsontext";
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

// registrationAt returns the body that registers a deployment at a URL, with all else that it has registered. Whoever
// sends it reads the deployment right before: its app may have registered since a form was opened.
export function registrationAt(url: string, now: JsonValue | undefined): string {
  const kept = ["workflows", "build", "schemas"].flatMap((name) => {
    const value = member(now, name);
    return value ? [`"${name}":${writeJson(value, false)}`] : [];
  });
  return `{${[`"url":${JSON.stringify(url)}`, ...kept].join(",")}}`;
}
