// Bundles the client into the Python package. Nothing is fetched at run time: one script, one style sheet, one page.
import { copyFile, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build, context } from "esbuild";

const here = dirname(dirname(fileURLToPath(import.meta.url)));
const out = process.env.STUDIO_STATIC ?? join(here, "..", "src", "poolgrad_studio", "static");
const watching = process.argv.includes("--watch");

const options = {
  entryPoints: [join(here, "src", "main.tsx")],
  outfile: join(out, "assets", "app.js"),
  bundle: true,
  format: "esm",
  target: ["es2022"],
  jsx: "automatic",
  minify: !watching,
  sourcemap: watching ? "inline" : false,
  legalComments: "none",
  define: { "process.env.NODE_ENV": watching ? '"development"' : '"production"' },
  logLevel: "warning",
};

/** The licences of what the bundle contains travel with it. */
async function licences() {
  const lock = JSON.parse(await readFile(join(here, "package-lock.json"), "utf8"));
  const parts = [];
  for (const [path, entry] of Object.entries(lock.packages)) {
    if (!path || entry.dev || entry.optional || path.includes("@types/")) continue;
    for (const name of ["LICENSE", "LICENSE.md", "license"]) {
      const text = await readFile(join(here, path, name), "utf8").catch(() => "");
      if (text) {
        parts.push(`${path.replace("node_modules/", "")} ${entry.version} (${entry.license})\n\n${text.trim()}\n`);
        break;
      }
    }
  }
  await writeFile(join(out, "assets", "LICENSES.txt"), parts.join(`\n${"-".repeat(78)}\n\n`));
}

await rm(out, { recursive: true, force: true });
await mkdir(join(out, "assets"), { recursive: true });
await copyFile(join(here, "src", "index.html"), join(out, "index.html"));
await licences();
if (watching) {
  await (await context(options)).watch();
} else {
  await build(options);
  let total = 0;
  for (const name of ["assets/app.js", "assets/app.css", "index.html"]) {
    const bytes = await readFile(join(out, name));
    const packed = gzipSync(bytes, { level: 9 }).length;
    total += packed;
    console.log(`${name.padEnd(16)} ${(bytes.length / 1000).toFixed(1).padStart(8)} kB   gzipped ${(packed / 1000).toFixed(1)} kB`);
  }
  console.log(`${"bundle".padEnd(16)} ${" ".repeat(11)}   gzipped ${(total / 1000).toFixed(1)} kB`);
}
