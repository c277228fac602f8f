// Clients that encrypt, by lines of JSON: each line on standard input is something that one of them
// does, and each line on standard output is what came of it. It ends with its standard input.
import { createInterface } from "node:readline";
import * as sdk from "matrix-js-sdk";
import { decodeRecoveryKey, OnlySignedDevicesIsolationMode } from "matrix-js-sdk/lib/crypto-api/index.js";
import { VerificationPhase } from "matrix-js-sdk/lib/crypto-api/verification.js";

for (const level of ["trace", "debug", "log", "info", "warn", "error"]) console[level] = () => {};
const clients = {}, made = {};

const verbs = {
  async open({ url, user, token, device, password, signedOnly, recoveryKey }) {
    const known = recoveryKey && decodeRecoveryKey(recoveryKey);
    const client = sdk.createClient({
      baseUrl: url, userId: user, accessToken: token, deviceId: device, cryptoCallbacks: {
        getSecretStorageKey: async ({ keys }) => [Object.keys(keys)[0], known ?? made[user]],
      },
    });
    clients[user] = client;
    await client.initRustCrypto({ useIndexedDB: false });
    if (recoveryKey) await client.getCrypto().userHasCrossSigningKeys(user, true);
    const identifier = { type: "m.id.user", user };
    await client.getCrypto().bootstrapCrossSigning({
      authUploadDeviceSigningKeys: (ask) => ask({ type: "m.login.password", identifier, password }),
    });
    if (signedOnly) {
      client.getCrypto().setDeviceIsolationMode(new OnlySignedDevicesIsolationMode());
    }
    await client.startClient({ initialSyncLimit: 100 });
    await new Promise((done) => client.once("sync", done));
  },
  async makeRecoveryKey({ user }) {
    const crypto = clients[user].getCrypto();
    const key = await crypto.createRecoveryKeyFromPassphrase();
    made[user] = key.privateKey;
    await crypto.bootstrapSecretStorage({ createSecretStorageKey: async () => key });
    return key.encodedPrivateKey;
  },
  async create({ user, invite }) {
    const content = { algorithm: "m.megolm.v1.aes-sha2" };
    const created = await clients[user].createRoom({
      preset: "trusted_private_chat", is_direct: true, invite,
      initial_state: [{ type: "m.room.encryption", state_key: "", content }],
    });
    const room = created.room_id; // as in Element, nobody writes before the client shows the room
    const isShown = () => invite.every((each) => clients[user].getRoom(room)?.getMember(each));
    while (!isShown()) await new Promise((done) => clients[user].once("sync", done));
    return room;
  },
  async say({ user, room, text }) {
    return (await clients[user].sendTextMessage(room, text)).event_id;
  },
  async rotate({ user, room }) {
    await clients[user].getCrypto().forceDiscardSession(room);
  },
  async react({ user, room, event, key }) {
    const content = { "m.relates_to": { rel_type: "m.annotation", event_id: event, key } };
    return (await clients[user].sendEvent(room, "m.reaction", content)).event_id;
  },
  async texts({ user, room }) {
    const found = [];
    for (const event of clients[user].getRoom(room)?.getLiveTimeline().getEvents() ?? []) {
      if (event.isEncrypted() && event.isDecryptionFailure()) {
        await event.attemptDecryption(clients[user].getCrypto(), { isRetry: true }).catch(() => {});
      }
      if (event.getType() !== "m.room.message" && !event.isDecryptionFailure()) continue;
      const text = event.isDecryptionFailure() ? "UNDECRYPTABLE" : (event.getContent().body ?? "");
      found.push({ sender: event.getSender(), text, id: event.getId() });
    }
    return found;
  },
  async isSigned({ user, of, device }) {
    const status = await clients[user].getCrypto().getDeviceVerificationStatus(of, device);
    return Boolean(status?.signedByOwner);
  },
  async send({ user, room, kind, content }) {
    await caughtUp(user, room);
    return (await clients[user].sendEvent(room, kind, content)).event_id;
  },
  async timeline({ user, room }) {
    await caughtUp(user, room);
    const events = clients[user].getRoom(room).getLiveTimeline().getEvents();
    return Promise.all(events.map((event) => shown(user, event)));
  },
  async encryptFile({ content }) {
    const key = await crypto.subtle.generateKey(
      { name: "AES-CTR", length: 256 }, true, ["encrypt", "decrypt"],
    );
    const counter = new Uint8Array(16); // the second half counts the blocks
    crypto.getRandomValues(counter.subarray(0, 8));
    const plain = Buffer.from(content, "base64");
    const secret = await crypto.subtle.encrypt({ name: "AES-CTR", counter, length: 64 }, key, plain);
    const sha256 = unpadded(await crypto.subtle.digest("SHA-256", secret));
    const exported = await crypto.subtle.exportKey("jwk", key);
    const file = { v: "v2", key: exported, iv: unpadded(counter), hashes: { sha256 } };
    return { content: Buffer.from(secret).toString("base64"), file };
  },
  async decryptFile({ content, file }) {
    const secret = Buffer.from(content, "base64");
    const digest = unpadded(await crypto.subtle.digest("SHA-256", secret));
    if (digest !== file.hashes.sha256) throw new Error("the file has another hash");
    const key = await crypto.subtle.importKey("jwk", file.key, "AES-CTR", false, ["decrypt"]);
    const counter = Buffer.from(file.iv, "base64");
    const plain = await crypto.subtle.decrypt({ name: "AES-CTR", counter, length: 64 }, key, secret);
    return Buffer.from(plain).toString("base64");
  },
  async verify({ user, of, device, room }) {
    const mine = clients[user].getCrypto();
    if (room) await caughtUp(user, room);
    await mine.getUserDeviceInfo([of], true);
    const request = await (room
      ? mine.requestVerificationDM(of, room) : mine.requestDeviceVerification(of, device));
    return requests.push(request) - 1;
  },
  async verification({ number }) {
    const { cancellationCode, cancellingUserId } = requests[number];
    const isCancelled = requests[number].phase === VerificationPhase.Cancelled;
    return { isCancelled, code: cancellationCode ?? null, by: cancellingUserId ?? null };
  },
};

const requests = [];

// As in Element, nobody writes before the client shows what the room has.
async function caughtUp(user, room) {
  const client = clients[user];
  const newest = (await client.createMessagesRequest(room, null, 1, "b")).chunk[0]?.event_id;
  const isThere = () => !newest || client.getRoom(room)?.findEventById(newest);
  while (!isThere()) await new Promise((done) => client.once("sync", done));
}

async function shown(user, event) {
  await clients[user].decryptEventIfNeeded(event).catch(() => {});
  const relation = event.getWireContent()["m.relates_to"]; // never encrypted
  return {
    event_id: event.getId(),
    sender: event.getSender(),
    type: event.getType(),
    content: { ...event.getOriginalContent(), ...(relation && { "m.relates_to": relation }) },
    failure: event.isDecryptionFailure() ? event.decryptionFailureReason : "",
    isHighlighted: Boolean(clients[user].getPushActionsForEvent(event)?.tweaks?.highlight),
    ...(event.isState() && { state_key: event.getStateKey() }),
  };
}

const unpadded = (bytes) => Buffer.from(bytes).toString("base64").replace(/=+$/, "");

const lines = createInterface({ input: process.stdin });
lines.on("close", () => process.exit(0)); // also while a client waits
for await (const line of lines) {
  const { do: verb, ...about } = JSON.parse(line);
  let answer;
  try {
    answer = { result: (await verbs[verb](about)) ?? null };
  } catch (error) {
    answer = { error: `${verb}: ${error?.stack ?? error}` };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
process.exit(0);
