// What went wrong with a request, in words that say what to do.

// Problem is a failed request.
export class Problem extends Error {
  // When that was read which is shown nevertheless, in milliseconds; 0 if nothing is.
  shownAt = 0;

  constructor(
    // The HTTP status; 0 if no answer came.
    readonly status: number,
    readonly code: string,
    message: string,
    readonly details: Record<string, unknown> = {},
    readonly requestId = "",
    // Seconds until the request can be repeated; 0 if the server does not say.
    readonly retryAfter = 0,
  ) {
    super(message);
  }
}

// problemOf returns the problem that an answer of the server describes.
export function problemOf(status: number, body: string, retryAfter: string | null): Problem {
  const seconds = Number(retryAfter ?? 0) || 0;
  try {
    const { error } = JSON.parse(body) as { error: { code: string; message: string; details?: {}; requestId?: string } };
    return new Problem(status, error.code, error.message, error.details, error.requestId, seconds);
  } catch {
    return new Problem(status, "no_answer", `Something between this page and the server answered ${status}.`, {}, "", seconds);
  }
}

// titleOf returns what happened in a few words.
export function titleOf(p: Problem): string {
  switch (true) {
    case p.status < 0: return "This page has a fault";
    case p.status === 0: return "The server cannot be reached";
    case p.status === 401: return "Your session is over";
    case p.status === 403: return "Your key may not do this";
    case p.status === 404: return "This does not exist here";
    case p.status === 409: return "The state does not allow this";
    case p.status === 410: return "The run has ended meanwhile";
    case p.status === 421: return "This belongs to another cell";
    case p.status === 429: return "Too many requests";
    case p.code === "database_unavailable": return "The database is away";
    case p.status === 503: return "The server is busy";
    case p.status >= 500: return "The server failed";
    default: return "The request was refused";
  }
}

// asksForKey reports whether the browser has not opened the project where the request was answered, or no longer.
export function asksForKey(p: Problem): boolean {
  return p.status === 401 || p.status === 421;
}

// isTemporary reports whether the same request may succeed later without anybody doing something.
export function isTemporary(p: Problem): boolean {
  return p.status === 0 || p.status === 429 || p.status >= 500;
}
