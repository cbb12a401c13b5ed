/** Reads the events of a response. The interface is in web/README.md; this is a placeholder. */

import type { StoredEvent } from "./types";

// eslint-disable-next-line require-yield
export async function* readEvents(_response: Response): AsyncGenerator<StoredEvent> {}
