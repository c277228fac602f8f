"""The chats: each adapter knows one platform, and the relay delivers for all of them."""
