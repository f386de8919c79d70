// Receives server-sent events, and reconnects where the browser does not: a browser reconnects after a broken
// connection, but not after a refused one.

/** The wait before reconnecting, in milliseconds. */
const RETRY = 5_000;

/**
 * Receives the events of the server until the page is closed.
 * @param {Record<string, (data: string) => void>} handlers by the type of the event
 * @param {(refused: boolean) => void} lost called when a connection is lost or refused
 */
export function receive(handlers, lost) {
  const source = new EventSource("stream");
  for (const [type, handler] of Object.entries(handlers)) {
    source.addEventListener(type, (event) => handler(/** @type {MessageEvent} */ (event).data));
  }
  source.addEventListener("error", () => {
    const refused = source.readyState === EventSource.CLOSED;
    lost(refused);
    if (refused) setTimeout(() => receive(handlers, lost), RETRY);
  });
}
