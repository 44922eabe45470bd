// Peers of Tuskline on node: `node main.mjs PEER ROLE`, on the database of PEER_URL. Roles and what
// is said on standard output are those of the Rust peers (../rust/src/main.rs).

import { payload, stampedBeats } from "./pace.mjs";
import { Tally, say, untilToldToEnd } from "./tally.mjs";

const [peerName, role, ...words] = process.argv.slice(2);
const numbers = words.map(Number);
const peer = await import(`./${peerName}.mjs`);
const url = process.env.PEER_URL;

if (role === "setup") {
  await peer.setup(url);
} else if (role === "preload") {
  await peer.preload(url, numbers[0], payload());
} else if (role === "send") {
  const [rate, seconds, connections] = numbers;
  const { insert, close } = await peer.sender(url, connections);
  await Promise.all(stampedBeats(rate, seconds, connections, insert));
  say("sent", { tasks: rate * seconds });
  await close();
} else if (role === "work") {
  const tally = new Tally(numbers[0]);
  const close = await peer.work(url, tally);
  await untilToldToEnd();
  await close();
  tally.end();
} else {
  throw new Error(`no role ${role}`);
}
process.exit(0); // whatever a library may still wait for
