// Requests with the token of this tab, and the one stream of events that the server pushes.

const TOKEN = "shmcache-token";

export const token = {
  get: () => sessionStorage.getItem(TOKEN) ?? "",
  set: (value) => sessionStorage.setItem(TOKEN, value),
};

export class Refused extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

/** A response; a Refused with the server's own sentence if it is not one. */
export async function request(path, { accept = "application/json", signal } = {}) {
  const headers = { Accept: accept };
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
  const answer = await fetch(path, { headers, signal, cache: "no-store" });
  if (answer.ok) return answer;
  const body = await answer.text();
  let message = body;
  try {
    message = JSON.parse(body).message ?? body;
  } catch {
    // the server's plain text
  }
  throw new Refused(answer.status, message || `status ${answer.status}`);
}

export const json = async (path, options) => (await request(path, options)).json();

/** Follows the stream until close(); connects again after growing pauses. */
export class Stream {
  constructor(query, on) {
    this.on = on;
    this.query = query;
    this.closed = false;
    this.pause = 250;
    this.run();
  }

  close() {
    this.closed = true;
    this.abort?.abort();
  }

  async run() {
    while (!this.closed) {
      try {
        this.abort = new AbortController();
        await this.read();
      } catch (error) {
        if (this.closed) return;
        this.on.lost(error);
        if (error instanceof Refused && error.code === 401) return;
      }
      if (this.closed) return;
      await new Promise((resolve) => setTimeout(resolve, this.pause));
      this.pause = Math.min(this.pause * 2, 5000);
    }
  }

  async read() {
    const path = `stream?${new URLSearchParams(this.query)}`;
    const answer = await request(path, { accept: "text/event-stream", signal: this.abort.signal });
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) throw new Error("the server ended the stream");
      this.pause = 250;
      const events = (rest + value).split("\n\n");
      rest = events.pop();
      for (const event of events) this.take(event);
    }
  }

  take(event) {
    const [name, data] = event.split("\n", 2);
    const kind = name.slice("event: ".length);
    this.on[kind]?.(JSON.parse(data.slice("data: ".length)));
  }
}
