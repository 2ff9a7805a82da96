// Requests to the server.

export class Problem extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export async function get(path, params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    for (const item of Array.isArray(value) ? value : [value]) {
      if (item !== undefined && item !== null && item !== "") query.append(name, item);
    }
  }
  const text = query.toString();
  return parse(await request(`/api/${path}${text ? `?${text}` : ""}`, {}));
}

export async function post(path, params, body) {
  const query = new URLSearchParams(params).toString();
  return parse(
    await request(`/api/${path}${query ? `?${query}` : ""}`, {
      method: "POST",
      headers: { "content-type": "application/json", "x-palestra": "1" },
      body: JSON.stringify(body ?? {}),
    }),
  );
}

async function request(path, options) {
  try {
    return await fetch(path, options);
  } catch {
    throw new Problem("The viewer is not reachable. Is `palestra view` still running?", 0);
  }
}

async function parse(response) {
  if (response.ok && response.status !== 202) return response.json(); // 202 means that the episode is not indexed yet
  let text = `${response.status} ${response.statusText}`;
  try {
    const body = await response.json();
    text = body.problem ?? text;
    if (Array.isArray(body.detail)) text = body.detail.map((part) => `${part.loc?.at(-1)}: ${part.msg}`).join("; ");
  } catch {
    // The body is not JSON; report the HTTP status.
  }
  throw new Problem(text, response.status);
}
