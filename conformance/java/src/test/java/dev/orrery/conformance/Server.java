package dev.orrery.conformance;

import com.azure.cosmos.CosmosAsyncClient;
import com.azure.cosmos.CosmosClient;
import com.azure.cosmos.CosmosClientBuilder;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;

/** The server under test and the clients that all tests share. */
final class Server {
    static final String ENDPOINT = System.getenv("ORRERY_ENDPOINT");
    static final String SECURE_ENDPOINT = ENDPOINT.replace("http://", "https://");
    static final String KEY = System.getenv("ORRERY_KEY");
    static final String READ_ONLY_KEY = System.getenv("ORRERY_READ_ONLY_KEY");

    static final CosmosClient CLIENT;
    static final CosmosAsyncClient ASYNC_CLIENT;

    static {
        // Before the first client, since the SDK takes its authorities from the machine's settings.
        trustAuthority();
        CLIENT = builder().key(KEY).contentResponseOnWriteEnabled(true).buildClient();
        ASYNC_CLIENT = builder().key(KEY).contentResponseOnWriteEnabled(true).buildAsyncClient();
    }

    private Server() {}

    static CosmosClientBuilder builder() {
        return new CosmosClientBuilder().endpoint(ENDPOINT).gatewayMode();
    }

    private static void trustAuthority() {
        try (InputStream pem = Files.newInputStream(Path.of(System.getenv("ORRERY_CA")))) {
            KeyStore store = KeyStore.getInstance("PKCS12");
            store.load(null, null);
            store.setCertificateEntry("orrery", CertificateFactory.getInstance("X.509").generateCertificate(pem));
            Path file = Files.createTempFile("orrery", ".p12");
            file.toFile().deleteOnExit();
            try (OutputStream out = Files.newOutputStream(file)) {
                store.store(out, "public".toCharArray());
            }
            System.setProperty("javax.net.ssl.trustStore", file.toString());
            System.setProperty("javax.net.ssl.trustStorePassword", "public");
        } catch (Exception exception) {
            throw new IllegalStateException("the certificate authority cannot be trusted", exception);
        }
    }
}
