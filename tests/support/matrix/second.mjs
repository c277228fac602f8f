// Clients that encrypt, by lines of JSON: each line on standard input is something that one of them
// does, and each line on standard output is what came of it. It ends with its standard input.
import { createInterface } from "node:readline";
import * as sdk from "matrix-js-sdk";
import { decodeRecoveryKey, OnlySignedDevicesIsolationMode } from "matrix-js-sdk/lib/crypto-api/index.js";

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
};

const lines = createInterface({ input: process.stdin });
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
