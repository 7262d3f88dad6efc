// One way to call a service: a base address, an optional token, a request id, a time limit, and one kind of error.
//
// Nothing here retries: whether a request may be repeated is known only to the caller.

const TIMEOUT_MS = 10_000;

/** Why a call did not succeed, in the service's words where it had any. */
export class ApiError extends Error {
  constructor(
    /** 0 when no answer came at all. */
    readonly status: number,
    readonly code: string,
    message: string,
    readonly requestId: string,
    readonly retryAfterMs: number | null = null,
  ) {
    super(message);
    this.name = 'ApiError';
  }

  /** The request was surely not carried out: asking again with other content does no harm. */
  get refused(): boolean {
    return this.status >= 400 && this.status < 500;
  }
}

export interface Call {
  method?: 'GET' | 'POST' | 'PUT' | 'DELETE';
  body?: unknown;
  token?: string | null;
  headers?: Record<string, string>;
  query?: Record<string, string | undefined>;
  timeoutMs?: number;
}

export interface Answer<Body> {
  status: number;
  body: Body;
}

/** `base` is `''` for the origin the page came from, or another service's address. */
export async function call<Body>(base: string, path: string, request: Call = {}): Promise<Answer<Body>> {
  const requestId = newRequestId();
  let response: Response;
  let text: string;
  try {
    response = await fetch(address(base, path, request.query), init(request, requestId));
    text = await response.text();
  } catch (cause) {
    throw unreachable(cause, requestId);
  }
  if (!response.ok) throw failure(response, text, requestId);
  return { status: response.status, body: parse<Body>(text, response.status, requestId) };
}

/** Joins without doubling the slash that service addresses end with; leaves out absent parameters. */
export function address(base: string, path: string, query: Record<string, string | undefined> = {}): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== undefined) parameters.set(name, value);
  const text = parameters.toString();
  return base.replace(/\/+$/, '') + path + (text === '' ? '' : `?${text}`);
}

/** What to tell the user about anything that was thrown. */
export function explain(problem: unknown): string {
  if (problem instanceof ApiError) return problem.message;
  return problem instanceof Error ? problem.message : String(problem);
}

function init(request: Call, requestId: string): RequestInit {
  const headers: Record<string, string> = { ...request.headers, 'X-Request-Id': requestId };
  if (request.token) headers['Authorization'] = `Bearer ${request.token}`;
  if (request.body !== undefined) headers['Content-Type'] = 'application/json';
  return {
    method: request.method ?? 'GET',
    headers,
    body: request.body === undefined ? null : JSON.stringify(request.body),
    signal: AbortSignal.timeout(request.timeoutMs ?? TIMEOUT_MS),
    cache: 'no-store',
    credentials: 'omit',
  };
}

function unreachable(cause: unknown, requestId: string): ApiError {
  const late = cause instanceof DOMException && cause.name === 'TimeoutError';
  const message = late ? 'the service did not answer in time' : 'the service cannot be reached';
  return new ApiError(0, 'unreachable', message, requestId);
}

function failure(response: Response, text: string, requestId: string): ApiError {
  const described = describe(text);
  const seconds = Number(response.headers.get('Retry-After') ?? Number.NaN);
  return new ApiError(
    response.status,
    described?.code ?? 'unexpected',
    described?.message ?? `the service answered ${response.status}`,
    described?.requestId ?? requestId,
    Number.isFinite(seconds) ? seconds * 1000 : null,
  );
}

function describe(text: string): { code: string; message: string; requestId?: string } | null {
  try {
    const { error } = JSON.parse(text) as { error?: { code?: unknown; message?: unknown; requestId?: unknown } };
    if (typeof error?.code !== 'string' || typeof error.message !== 'string') return null;
    const described = { code: error.code, message: error.message };
    return typeof error.requestId === 'string' ? { ...described, requestId: error.requestId } : described;
  } catch {
    return null;
  }
}

function parse<Body>(text: string, status: number, requestId: string): Body {
  try {
    return JSON.parse(text) as Body;
  } catch {
    throw new ApiError(status, 'unexpected', 'the service answered with something that is not JSON', requestId);
  }
}

function newRequestId(): string {
  return `web-${randomText()}`;
}

/** 128 random bits as text. `crypto.randomUUID` exists in secure contexts only. */
export function randomText(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}
