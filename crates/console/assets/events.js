// The server-sent events, with a new connection where the browser gives up. A browser repeats a broken connection, but
// not one that was refused, such as by a proxy whose login has expired.

/** The wait before another connection, in milliseconds. */
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
