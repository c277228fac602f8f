"""Limits of files, for programs that don't load messages as well."""

#: How many files one message may have, how large each may be, and all together, in bytes. Chat
#: platforms give bots files of 20 to 25 MB.
MAX_ATTACHMENTS = 10
MAX_ATTACHMENT_BYTES = 20 * 1024 * 1024
MAX_ATTACHMENTS_BYTES = 40 * 1024 * 1024
