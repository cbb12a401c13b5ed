/** The logo of the app, or the mark of Aguila. */

import { options } from "./options";

export function Logo({ size }: { size: number }) {
  return options.logo === undefined ? <Mark size={size} /> : <img class="logo" src={options.logo} alt="" height={size} />;
}

/** The mark of Aguila: an eagle from the front. */
function Mark({ size }: { size: number }) {
  return (
    <svg class="mark-of-aguila" viewBox="0 0 32 32" width={size} height={size} aria-hidden="true">
      <path d="M2 24c8-1 11-7 14-17 3 10 6 16 14 17-6 2-10 1-14-3-4 4-8 5-14 3z" fill="currentColor" />
    </svg>
  );
}
