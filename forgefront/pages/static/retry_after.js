// Parses Retry-After (RFC 9110, 10.2.3).

/** A longer timer than 24.8 days of `setTimeout` fires at once. */
const MAX_SECONDS = 3600;

/** The seconds of a Retry-After header, a number or a date, at most an hour; `null` if it is absent, neither, or in the past. */
export function retryAfter(headers) {
  const value = headers.get("Retry-After")?.trim() ?? "";
  const seconds = /^\d+$/.test(value) ? Number(value) : (Date.parse(value) - Date.now()) / 1000;
  return seconds > 0 ? Math.min(seconds, MAX_SECONDS) : null;
}
