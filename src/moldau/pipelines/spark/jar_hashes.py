"""SHA-256 of the jars that were published: a jar from a repository must have the hash of its name.

A jar of a version that is not here is checked only by the sums that the repository itself names.
"""

SHA256 = {
    "commons-pool2-2.12.0.jar": "6d3bd18df8410f3e31b031aca582cc109342358a62a2759ebd0c4cdf30d06f8b",
    "commons-pool2-2.12.1.jar": "5273c8bc8c0dca2211175c0d27efbd7228efae99689aac001a8e1ef8e872e9ef",
    "commons-pool2-2.13.0.jar": "488ededfcc481666845265a64dccc322fc8f0205940b4943a53de2d8ed04c48c",
    "commons-pool2-2.13.1.jar": "f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f",
    "kafka-clients-3.9.0.jar": "15c1e137f2c2c94398e27abc4060a03b6bde10bf9fac15e8f70c02320b202f18",
    "kafka-clients-3.9.1.jar": "7568b998572d256f0b7bc0afdc1b7a2588b8b08415c62ce314c864a6851ae9d9",
    "kafka-clients-3.9.2.jar": "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8",
    "kafka-clients-4.0.0.jar": "8a8ad0ef4f7138b3f5c138ca4a921ba3cce5be64a82e82c370a9a134f31895a2",
    "kafka-clients-4.1.0.jar": "eb74709dc3be35e06208827860c87a94872e8a4b00f466880670785c85a20627",
    "kafka-clients-4.2.0.jar": "bcf39f152c5553c2501a491fc4a73c5b0330741e8eed96a481323b8ee89738af",
    "kafka-clients-4.3.1.jar": "52501b7b47510c66f898871adaf6d2968ab7246561d44ced43643a8a587f0b36",
    "spark-sql-kafka-0-10_2.13-4.0.0.jar": "33a3b8b04df4a2e43c9d5bf8ca5972936a1ac662f2714e014d00ef6f27468bf3",
    "spark-sql-kafka-0-10_2.13-4.0.1.jar": "a9c5366a61087e7e7ff903c3dc160e80b33d2ea04d365e0795cc4a58befc3a16",
    "spark-sql-kafka-0-10_2.13-4.0.2.jar": "faa232c017b0cb4480c14643eb82abf6d0cac4b4d032059bf999b9246d045eb6",
    "spark-sql-kafka-0-10_2.13-4.0.3.jar": "6591c1556daee42a76e0bce3307c6b924df890142354e84ab38b546bbab27f89",
    "spark-sql-kafka-0-10_2.13-4.1.0.jar": "a335b885043bbe0d553ab70738418a45eb4cda94a28718e4b62a347046c03723",
    "spark-sql-kafka-0-10_2.13-4.1.1.jar": "9c1ce986f548e6b1dcb0e2dfe2f253a0bc58f2232a32a0c9c6c674dd25a8570c",
    "spark-sql-kafka-0-10_2.13-4.1.2.jar": "1dce8c690aea67bba8942eaa0280aa5dbc16e0c7c64bd0b1777b919b36d7ab2e",
    "spark-sql-kafka-0-10_2.13-4.2.0.jar": "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
    "spark-token-provider-kafka-0-10_2.13-4.0.0.jar": (
        "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767"
    ),
}
