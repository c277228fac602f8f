"""The console: chats in terminals, which the gateway delivers (`gateway.consoles`)."""
