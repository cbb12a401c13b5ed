import { defineConfig } from "vite";

export default defineConfig({
  base: "./",
  build: {
    outDir: "../src/aguila/server/frontends/page/assets",
    emptyOutDir: true,
    assetsDir: "_page",
    assetsInlineLimit: 0, // the policy allows no data: URL
    modulePreload: { polyfill: false }, // the polyfill is an inline script
    target: "es2022",
  },
});
