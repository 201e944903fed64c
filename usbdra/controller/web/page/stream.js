// SPDX-License-Identifier: Apache-2.0
// Reads the server's events with fetch(): the token goes in a header, never into an address.

const PAUSE = { first: 1000, most: 20000 };

export class Refused extends Error {}

// Calls `told(event, data)` for every event and `state(words)` for the connection, until the
// signal or an answer that another try would not change, which is thrown as Refused.
export async function follow(token, signal, told, state) {
  let pause = PAUSE.first;
  while (!signal.aborted) {
    try {
      const response = await fetch("api/stream", { headers: header(token), signal, cache: "no-store" });
      if ([401, 403].includes(response.status)) throw new Refused(await message(response));
      if (!response.ok) throw new Error(await message(response));
      told("begin", {});
      pause = PAUSE.first;
      for await (const [event, data] of events(response.body)) told(event, data);
    } catch (error) {
      if (error instanceof Refused || signal.aborted) throw error;
      state(`Not connected: ${error.message}`);
      pause = Math.min(pause * 2, PAUSE.most);
    }
    await new Promise((done) => setTimeout(done, pause));
  }
}

export async function assign(token, device, namespace) {
  const headers = { ...header(token), "Content-Type": "application/json" };
  const body = JSON.stringify({ device, namespace });
  const response = await fetch("api/assign", { method: "POST", headers, body });
  if (!response.ok) throw new Error(await message(response));
}

function header(token) {
  return token ? { Authorization: `Bearer ${token}` } : {};
}

async function message(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `${response.status} ${response.statusText}`;
  }
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (text + value).split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      const parts = /^event: (\w+)\ndata: (.*)$/.exec(block);
      if (parts) yield [parts[1], JSON.parse(parts[2])];
    }
  }
}
