"""Limits on files, in a module of their own for programs that don't import the messages."""

#: The maximum number of files in one message.
MAX_ATTACHMENTS = 10
#: The maximum size of one file, in bytes. Chat platforms give bots files of up to 20 or 25 MB.
MAX_ATTACHMENT_BYTES = 20 * 1024 * 1024
#: The maximum total size of the files in one message, in bytes.
MAX_ATTACHMENTS_BYTES = 40 * 1024 * 1024
