/** Gives the focus back to the button that opened a form. */

import { useLayoutEffect, useRef } from "preact/hooks";

/** Return a ref for a button. When the form that it opened has closed, the button gets the focus. */
export function useFocusAfter(isOpen: boolean) {
  const button = useRef<HTMLButtonElement>(null);
  const wasOpen = useRef(false);
  useLayoutEffect(() => {
    if (wasOpen.current && !isOpen) button.current?.focus();
    wasOpen.current = isOpen;
  }, [isOpen]);
  return button;
}
