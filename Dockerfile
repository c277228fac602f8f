# A host of a fleet: workers, a gateway, a sweeper and the adapters of chat platforms under
# `remoteclaw up`, with the agents' CLIs. docs/operations.md#containers says how to use it.
ARG BASE=python:3.12-slim-bookworm
ARG NODE=node:24-bookworm-slim

FROM ${NODE} AS node

FROM ${BASE}
# PACKAGES are Debian packages that your agents need, such as "make gcc".
ARG PACKAGES=""
# Debian removes old versions of its packages, so that pinned ones can't be installed for long.
# hadolint ignore=DL3008,SC2086
RUN apt-get update \
  && apt-get install -y --no-install-recommends \
    ca-certificates git openssh-client procps ripgrep tini $PACKAGES \
  && rm -rf /var/lib/apt/lists/*

# The CLIs, each in the version that is given; one without a version is left out.
COPY --from=node /usr/local/bin/node /usr/local/bin/node
COPY --from=node /usr/local/lib/node_modules/npm /usr/local/lib/node_modules/npm
ARG CLAUDE_CODE="" CODEX="" GEMINI_CLI="" OPENCODE=""
# hadolint ignore=SC2086
RUN ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm \
  && ln -s ../lib/node_modules/npm/bin/npx-cli.js /usr/local/bin/npx \
  && set -- ${CLAUDE_CODE:+"@anthropic-ai/claude-code@$CLAUDE_CODE"} ${CODEX:+"@openai/codex@$CODEX"} \
    ${GEMINI_CLI:+"@google/gemini-cli@$GEMINI_CLI"} ${OPENCODE:+"opencode-ai@$OPENCODE"} \
  && if [ $# -gt 0 ]; then npm install --global --no-audit --no-fund "$@"; fi \
  && rm -rf ~/.npm

# Libraries before RemoteClaw itself, so that a new version of it installs only itself.
WORKDIR /usr/src/remoteclaw
COPY requirements.txt requirements-terminals.txt ./
COPY remoteclaw/channels/matrix/requirements.txt matrix.txt
COPY remoteclaw/channels/slack/requirements.txt slack.txt
COPY remoteclaw/channels/telegram/requirements.txt telegram.txt
RUN pip install --no-cache-dir --root-user-action=ignore --require-hashes -r requirements.txt \
  -r requirements-terminals.txt -r matrix.txt -r slack.txt -r telegram.txt
COPY . .
RUN pip install --no-cache-dir --root-user-action=ignore --no-deps --no-build-isolation .

# New volumes at these places belong to the user, too. On a directory of your computer, the user
# needs your own number.
ARG UID=1000
RUN useradd --uid "$UID" --create-home remoteclaw \
  && install -d -o remoteclaw -m 700 /config /state /state/agents /state/workspaces \
  && install -o remoteclaw -m 600 /dev/null /config/remoteclaw.toml
ENV REMOTECLAW_HOME=/state REMOTECLAW_CONFIG=/config/remoteclaw.toml
USER ${UID}
WORKDIR /home/remoteclaw
EXPOSE 18789
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s \
  CMD ["remoteclaw", "status", "--check=worker"]
# tini collects the processes that agents leave.
ENTRYPOINT ["tini", "--"]
CMD ["remoteclaw", "up"]
